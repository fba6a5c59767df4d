// A topic is copied in transactions, each record once, as franz-go's example shows it. What fails ends the program.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	atOnce  = 20
	timeout = 20 * time.Second
)

func copyInTransactions(from, to, name string, options []kgo.Opt) {
	copying, err := kgo.NewGroupTransactSession(append(options,
		kgo.TransactionalID(name),
		kgo.TransactionTimeout(timeout),
		kgo.ConsumerGroup(name),
		kgo.InstanceID(name), // who is started again goes on at once
		kgo.ConsumeTopics(from),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)...)
	orEnd(err)
	forever := context.Background()
	for {
		fetched := copying.PollRecords(forever, atOnce)
		if fetched.NumRecords() == 0 {
			continue
		}
		orEnd(copying.Begin())
		failed := kgo.AbortingFirstErrPromise(copying.Client())
		fetched.EachRecord(func(read *kgo.Record) {
			written := &kgo.Record{Topic: to, Partition: read.Partition, Key: read.Key, Value: read.Value}
			copying.Produce(forever, written, failed.Promise())
		})
		_, err := copying.End(forever, failed.Err() == nil)
		orEnd(err)
	}
}

func orEnd(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// franz-go behind two doors, for a test that drives it.
//
//	franz send SERVERS TOPIC          each line of the input, KEY VALUE, is produced; "ok VALUE" or "failed VALUE WHY"
//	franz read SERVERS TOPIC GROUP    until the input ends: "read PARTITION OFFSET VALUE", "has PARTITION ...", "error WHY"
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	impatient = 5 * time.Second
	session   = 20 * time.Second
)

var saying sync.Mutex

func say(format string, words ...any) {
	saying.Lock()
	defer saying.Unlock()
	fmt.Printf(format+"\n", words...)
}

func main() {
	servers := kgo.SeedBrokers(strings.Split(os.Args[2], ",")...)
	// A broker that hangs holds up what was asked of it for as long as these say.
	patience := []kgo.Opt{servers, kgo.RequestTimeoutOverhead(impatient), kgo.ProduceRequestTimeout(impatient), kgo.DialTimeout(impatient)}
	if os.Args[1] == "send" {
		send(os.Args[3], patience)
	} else {
		read(os.Args[3], os.Args[4], patience)
	}
}

func client(options []kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(options...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return made
}

func send(topic string, options []kgo.Opt) {
	producer := client(append(options, kgo.DefaultProduceTopic(topic)))
	defer producer.Close()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), " ")
		record := &kgo.Record{Key: []byte(key), Value: []byte(value)}
		producer.Produce(context.Background(), record, func(sent *kgo.Record, err error) {
			if err != nil {
				say("failed %s %v", sent.Value, err)
			} else {
				say("ok %s", sent.Value)
			}
		})
	}
	if err := producer.Flush(context.Background()); err != nil {
		say("failed - %v", err)
	}
}

func read(topic, group string, options []kgo.Opt) {
	held := map[int32]bool{}
	change := func(to bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
			for _, partition := range changed[topic] {
				if to {
					held[partition] = true
				} else {
					delete(held, partition)
				}
			}
			var words strings.Builder
			for partition := range held {
				fmt.Fprintf(&words, " %d", partition)
			}
			say("has%s", words.String())
		}
	}
	// Who has callbacks of his own commits by himself before he lets go.
	revoke := func(now context.Context, consumer *kgo.Client, changed map[string][]int32) {
		if err := consumer.CommitUncommittedOffsets(now); err != nil {
			say("error commit: %v", err)
		}
		change(false)(now, consumer, changed)
	}
	consumer := client(append(options,
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(session),
		kgo.HeartbeatInterval(500*time.Millisecond),
		kgo.AutoCommitInterval(200*time.Millisecond),
		kgo.OnPartitionsAssigned(change(true)),
		kgo.OnPartitionsRevoked(revoke),
		kgo.OnPartitionsLost(change(false)),
		kgo.FetchMaxWait(500*time.Millisecond), // a partition that has another leader is fetched once this is over
	))
	ending, end := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		end()
	}()
	for ending.Err() == nil {
		fetched := consumer.PollFetches(ending)
		fetched.EachError(func(_ string, partition int32, err error) {
			if ending.Err() == nil {
				say("error partition %d: %v", partition, err)
			}
		})
		fetched.EachRecord(func(record *kgo.Record) {
			say("read %d %d %s", record.Partition, record.Offset, record.Value)
		})
	}
	consumer.Close() // it commits, and leaves the group
}

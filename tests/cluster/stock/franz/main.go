// franz-go behind the doors of by_lines.py, for a test that drives it.
//
// FRANZ_AUTHORITY is a file of PEM, and says that there is TLS; FRANZ_MECHANISM, FRANZ_USER and FRANZ_PASSWORD who it is.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const (
	impatient = 5 * time.Second
	session   = 45 * time.Second // as by default: what hangs may cost several of the times above, one after the other
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
	patience = append(patience, security()...)
	switch os.Args[1] {
	case "create":
		create(os.Args[3], os.Args[4], patience)
	case "send":
		if len(os.Args) > 4 {
			patience = append(patience, compression(os.Args[4]))
		}
		send(os.Args[3], patience)
	case "copy":
		copyInTransactions(os.Args[3], os.Args[4], os.Args[5], patience)
	default:
		read(os.Args[3], os.Args[4], patience)
	}
}

func security() (options []kgo.Opt) {
	if file := os.Getenv("FRANZ_AUTHORITY"); file != "" {
		authority, err := os.ReadFile(file)
		trusted := x509.NewCertPool()
		if err != nil || !trusted.AppendCertsFromPEM(authority) {
			fmt.Fprintln(os.Stderr, "no certificate in", file)
			os.Exit(1)
		}
		options = append(options, kgo.DialTLSConfig(&tls.Config{RootCAs: trusted}))
	}
	user, password := os.Getenv("FRANZ_USER"), os.Getenv("FRANZ_PASSWORD")
	switch os.Getenv("FRANZ_MECHANISM") {
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha512Mechanism()))
	}
	return options
}

func client(options []kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(options...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return made
}

func create(topic, partitions string, options []kgo.Opt) {
	count, err := strconv.Atoi(partitions)
	orEnd(err)
	wanted := kmsg.NewCreateTopicsRequestTopic()
	wanted.Topic, wanted.NumPartitions, wanted.ReplicationFactor = topic, int32(count), 1
	asked := kmsg.NewPtrCreateTopicsRequest()
	asked.Topics = append(asked.Topics, wanted)
	answer, err := asked.RequestWith(context.Background(), client(options))
	orEnd(err)
	orEnd(kerr.ErrorForCode(answer.Topics[0].ErrorCode))
}

func compression(codec string) kgo.Opt {
	codecs := map[string]kgo.CompressionCodec{
		"gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	return kgo.ProducerBatchCompression(codecs[codec])
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

// Any broker is asked who coordinates the group. Where the one that is chosen was killed a moment ago, whatever log it
// belonged to, franz-go gives up its membership, tells the application, and joins anew.
func foundNobody(err error) bool {
	var session *kgo.ErrGroupSession
	var refused *net.OpError
	return errors.As(err, &session) && errors.As(err, &refused) && refused.Op == "dial"
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
			if ending.Err() != nil {
				return
			}
			if foundNobody(err) {
				say("anew %v", err)
			} else {
				say("error partition %d: %v", partition, err)
			}
		})
		fetched.EachRecord(func(record *kgo.Record) {
			say("read %d %d %s", record.Partition, record.Offset, record.Value)
		})
	}
	consumer.Close() // it commits, and leaves the group
}

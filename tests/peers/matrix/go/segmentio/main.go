// kafka-go of segmentio, which has neither idempotence nor transactions.
package main

import (
	"context"
	"time"

	"github.com/segmentio/kafka-go"

	. "matrix/doors"
)

const soon = 10 * time.Millisecond

func main() {
	Obey(func(servers []string) Client {
		return Client{
			Create: func(topic string, partitions int) {
				admin := &kafka.Client{Addr: kafka.TCP(servers...)}
				wanted := kafka.TopicConfig{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1}
				answer, err := admin.CreateTopics(context.Background(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{wanted}})
				OrEnd(err)
				OrEnd(answer.Errors[topic])
			},
			Send: func(topic, codec string) { send(servers, topic, codec) },
			Read: func(topic, group string) { read(servers, topic, group) },
		}
	})
}

func send(servers []string, topic, codec string) {
	producer := &kafka.Writer{
		Addr: kafka.TCP(servers...), Topic: topic, Balancer: &kafka.Hash{}, RequiredAcks: kafka.RequireAll,
		BatchTimeout: soon, Async: true,
		Completion: func(sent []kafka.Message, err error) {
			for _, each := range sent {
				if err != nil {
					Say("failed %s %v", each.Value, err)
				} else {
					Say("ok %s", each.Value)
				}
			}
		},
	}
	OrEnd(producer.Compression.UnmarshalText([]byte(codec)))
	Records(func(key, value string) {
		OrEnd(producer.WriteMessages(context.Background(), kafka.Message{Key: []byte(key), Value: []byte(value)}))
	})
	OrEnd(producer.Close())
}

func read(servers []string, topic, group string) {
	consumer := kafka.NewReader(kafka.ReaderConfig{
		Brokers: servers, GroupID: group, Topic: topic, StartOffset: kafka.FirstOffset,
		IsolationLevel: kafka.ReadCommitted, CommitInterval: 20 * soon, MaxWait: 20 * soon,
	})
	working := Working()
	for {
		message, err := consumer.ReadMessage(working)
		if working.Err() != nil {
			break
		}
		OrEnd(err)
		Say("read %d %d %s", message.Partition, message.Offset, message.Value)
	}
	OrEnd(consumer.Close()) // it commits, and leaves the group
}

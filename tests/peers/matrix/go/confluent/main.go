// confluent-kafka-go, which is librdkafka.
package main

import (
	"context"
	"strings"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	. "matrix/doors"
)

func main() {
	Obey(func(servers []string) Client {
		how := func(more kafka.ConfigMap) *kafka.ConfigMap {
			more["bootstrap.servers"] = strings.Join(servers, ",")
			return &more
		}
		member := func(group string, more kafka.ConfigMap) *kafka.Consumer {
			more["group.id"], more["auto.offset.reset"] = group, "earliest"
			made, err := kafka.NewConsumer(how(more))
			OrEnd(err)
			return made
		}
		return Client{
			Create: func(topic string, partitions int) {
				admin, err := kafka.NewAdminClient(how(kafka.ConfigMap{}))
				OrEnd(err)
				wanted := kafka.TopicSpecification{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1}
				_, err = admin.CreateTopics(context.Background(), []kafka.TopicSpecification{wanted})
				OrEnd(err)
			},
			Send: func(topic, codec string) {
				producer, err := kafka.NewProducer(how(kafka.ConfigMap{"enable.idempotence": true, "compression.type": codec}))
				OrEnd(err)
				send(producer, topic)
			},
			Read: func(topic, group string) {
				read(member(group, kafka.ConfigMap{"auto.commit.interval.ms": 200}), topic)
			},
			Copy: func(from, to, name string) {
				producer, err := kafka.NewProducer(how(kafka.ConfigMap{"transactional.id": name, "transaction.timeout.ms": 20_000}))
				OrEnd(err)
				// By its name, who is started again goes on at once.
				consumer := member(name, kafka.ConfigMap{"enable.auto.commit": false, "group.instance.id": name})
				copyAll(consumer, producer, from, to)
			},
		}
	})
}

func send(producer *kafka.Producer, topic string) {
	said := make(chan bool)
	go func() {
		for event := range producer.Events() {
			switch sent := event.(type) {
			case *kafka.Message:
				if sent.TopicPartition.Error != nil {
					Say("failed %s %v", sent.Value, sent.TopicPartition.Error)
				} else {
					Say("ok %s", sent.Value)
				}
			}
		}
		said <- true
	}()
	Records(func(key, value string) {
		to := kafka.TopicPartition{Topic: &topic, Partition: kafka.PartitionAny}
		OrEnd(producer.Produce(&kafka.Message{TopicPartition: to, Key: []byte(key), Value: []byte(value)}, nil))
	})
	for producer.Flush(1000) > 0 {
	}
	producer.Close()
	<-said
}

func read(consumer *kafka.Consumer, topic string) {
	OrEnd(consumer.Subscribe(topic, nil))
	for working := Working(); working.Err() == nil; {
		switch event := consumer.Poll(100).(type) {
		case *kafka.Message:
			Say("read %d %d %s", event.TopicPartition.Partition, event.TopicPartition.Offset, event.Value)
		case kafka.Error:
			Say("error %v", event)
		}
	}
	OrEnd(consumer.Close()) // it commits, and leaves the group
}

func copyAll(consumer *kafka.Consumer, producer *kafka.Producer, from, to string) {
	forever, end := context.WithTimeout(context.Background(), time.Hour)
	defer end()
	go func() {
		for range producer.Events() {
		}
	}()
	OrEnd(producer.InitTransactions(forever))
	OrEnd(consumer.Subscribe(from, nil))
	for {
		var some []*kafka.Message
		for len(some) < AtOnce {
			message, isMessage := consumer.Poll(100).(*kafka.Message)
			if !isMessage {
				break
			}
			some = append(some, message)
		}
		if len(some) == 0 {
			continue
		}
		write := func() {
			OrEnd(producer.BeginTransaction())
			for _, each := range some {
				target := kafka.TopicPartition{Topic: &to, Partition: each.TopicPartition.Partition}
				OrEnd(producer.Produce(&kafka.Message{TopicPartition: target, Key: each.Key, Value: each.Value}, nil))
			}
		}
		write()
		OrEnd(producer.AbortTransaction(forever))
		write()
		held, err := consumer.Assignment()
		OrEnd(err)
		offsets, err := consumer.Position(held)
		OrEnd(err)
		metadata, err := consumer.GetConsumerGroupMetadata()
		OrEnd(err)
		OrEnd(producer.SendOffsetsToTransaction(forever, offsets, metadata))
		OrEnd(producer.CommitTransaction(forever))
	}
}

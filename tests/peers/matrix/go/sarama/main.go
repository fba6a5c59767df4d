// sarama. Transactions as its example of exactly-once has them: a producer for each partition that is read.
package main

import (
	"fmt"
	"sort"
	"time"

	"github.com/IBM/sarama"

	. "matrix/doors"
)

func config() *sarama.Config {
	made := sarama.NewConfig()
	made.Version = sarama.MaxVersion
	made.Net.MaxOpenRequests = 1
	made.Producer.Idempotent = true
	made.Producer.RequiredAcks = sarama.WaitForAll
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	made.Consumer.IsolationLevel = sarama.ReadCommitted
	made.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	return made
}

func main() {
	Obey(func(servers []string) Client {
		return Client{
			Create: func(topic string, partitions int) {
				admin, err := sarama.NewClusterAdmin(servers, config())
				OrEnd(err)
				defer admin.Close()
				OrEnd(admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: int32(partitions), ReplicationFactor: 1}, false))
			},
			Send: func(topic, codec string) { send(servers, topic, codec) },
			Read: func(topic, group string) { consume(servers, topic, group, config(), reader{}) },
			Copy: func(from, to, name string) {
				copying := config()
				copying.Consumer.Offsets.AutoCommit.Enable = false
				copying.Consumer.Group.InstanceId = name // who is started again goes on at once
				consume(servers, from, name, copying, copier{servers, to, name})
			},
		}
	})
}

func send(servers []string, topic, codec string) {
	sending := config()
	sending.Producer.Return.Successes = true
	OrEnd(sending.Producer.Compression.UnmarshalText([]byte(codec)))
	producer, err := sarama.NewAsyncProducer(servers, sending)
	OrEnd(err)
	said := make(chan bool)
	go func() {
		for sent := range producer.Successes() {
			value, _ := sent.Value.Encode()
			Say("ok %s", value)
		}
		said <- true
	}()
	go func() {
		for failed := range producer.Errors() {
			value, _ := failed.Msg.Value.Encode()
			Say("failed %s %v", value, failed.Err)
		}
		said <- true
	}()
	Records(func(key, value string) {
		producer.Input() <- &sarama.ProducerMessage{
			Topic: topic, Key: sarama.StringEncoder(key), Value: sarama.StringEncoder(value),
		}
	})
	producer.AsyncClose()
	<-said
	<-said
}

func consume(servers []string, topic, group string, how *sarama.Config, handler sarama.ConsumerGroupHandler) {
	member, err := sarama.NewConsumerGroup(servers, group, how)
	OrEnd(err)
	working := Working()
	for working.Err() == nil {
		if err := member.Consume(working, []string{topic}, handler); err != nil && working.Err() == nil {
			Say("error %v", err)
		}
	}
	OrEnd(member.Close())
}

type reader struct{}

func (reader) Setup(session sarama.ConsumerGroupSession) error {
	for _, held := range session.Claims() {
		sort.Slice(held, func(a, b int) bool { return held[a] < held[b] })
		words := fmt.Sprint(held)
		Say("has %s", words[1:len(words)-1])
	}
	return nil
}

func (reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		Say("read %d %d %s", message.Partition, message.Offset, message.Value)
		session.MarkMessage(message, "")
	}
	return nil
}

type copier struct {
	servers  []string
	to, name string
}

func (copier) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (copier) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (c copier) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	how := config()
	how.Producer.Transaction.ID = fmt.Sprint(c.name, "-", claim.Partition())
	how.Producer.Transaction.Timeout = 20 * time.Second
	how.Producer.Partitioner = sarama.NewManualPartitioner
	producer, err := sarama.NewAsyncProducer(c.servers, how)
	OrEnd(err)
	defer producer.Close()
	go func() {
		for failed := range producer.Errors() {
			OrEnd(failed)
		}
	}()
	for message := range claim.Messages() {
		some := []*sarama.ConsumerMessage{message}
		for len(some) < AtOnce && len(claim.Messages()) > 0 {
			some = append(some, <-claim.Messages())
		}
		write := func() {
			OrEnd(producer.BeginTxn())
			for _, each := range some {
				producer.Input() <- &sarama.ProducerMessage{
					Topic: c.to, Partition: each.Partition,
					Key: sarama.ByteEncoder(each.Key), Value: sarama.ByteEncoder(each.Value),
				}
			}
		}
		write()
		OrEnd(producer.AbortTxn())
		write()
		OrEnd(producer.AddMessageToTxn(some[len(some)-1], c.name, nil))
		OrEnd(producer.CommitTxn())
	}
	return nil
}

// kafkajs. Of codecs it brings gzip along.
import kafkajs from 'kafkajs'
import { AT_ONCE, ended, obey, say, sendAll } from './doors.js'

const { CompressionTypes, Kafka, Partitioners, logLevel } = kafkajs
const once = { idempotent: true, maxInFlightRequests: 1 }
const member = { sessionTimeout: 6000, heartbeatInterval: 500, maxWaitTimeInMs: 200 }

await obey(brokers => {
  const kafka = new Kafka({ brokers, logLevel: logLevel.ERROR })
  const producerOf = how => kafka.producer({ ...once, createPartitioner: Partitioners.DefaultPartitioner, ...how })
  return {
    async create(topic, partitions) {
      const admin = kafka.admin()
      await admin.connect()
      await admin.createTopics({ topics: [{ topic, numPartitions: Number(partitions) }] })
      await admin.disconnect()
    },
    async send(topic, codec) {
      const producer = producerOf({})
      await producer.connect()
      const compression = CompressionTypes[codec.toUpperCase()]
      await sendAll(messages => producer.send({ topic, messages, compression }))
      await producer.disconnect()
    },
    async read(topic, groupId) {
      const consumer = kafka.consumer({ groupId, ...member })
      consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => say('has', ...(payload.memberAssignment[topic] ?? [])))
      await consumer.connect()
      await consumer.subscribe({ topic, fromBeginning: true })
      await consumer.run({
        eachMessage: async ({ partition, message }) => say('read', partition, message.offset, message.value),
      })
      await ended()
      await consumer.disconnect()
    },
    async copy(from, to, name) {
      const producer = producerOf({ transactionalId: name, transactionTimeout: 20000 })
      const consumer = kafka.consumer({ groupId: name, readUncommitted: false, ...member })
      await producer.connect()
      await consumer.connect()
      await consumer.subscribe({ topic: from, fromBeginning: true })
      const write = async (partition, some) => {
        const transaction = await producer.transaction()
        const messages = some.map(({ key, value }) => ({ key, value, partition }))
        await transaction.send({ topic: to, messages })
        return transaction
      }
      await consumer.run({
        autoCommit: false,
        eachBatchAutoResolve: false,
        async eachBatch({ batch, resolveOffset, heartbeat }) {
          for (let at = 0; at < batch.messages.length; at += AT_ONCE) {
            const some = batch.messages.slice(at, at + AT_ONCE)
            const aborted = await write(batch.partition, some)
            await aborted.abort()
            const transaction = await write(batch.partition, some)
            const last = some[some.length - 1].offset
            const partitions = [{ partition: batch.partition, offset: String(Number(last) + 1) }]
            await transaction.sendOffsets({ consumerGroupId: name, topics: [{ topic: from, partitions }] })
            await transaction.commit()
            resolveOffset(last)
            await heartbeat()
          }
        },
      })
    },
  }
})

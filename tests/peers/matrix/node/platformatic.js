// @platformatic/kafka.
import { Admin, Consumer, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'
import { AT_ONCE, ended, obey, say, sendAll } from './doors.js'

const member = { sessionTimeout: 6000, rebalanceTimeout: 6000, heartbeatInterval: 500, maxWaitTime: 200 }

await obey(bootstrapBrokers => {
  const common = { clientId: 'matrix', bootstrapBrokers }
  const producerOf = how => new Producer({ ...common, serializers: stringSerializers, idempotent: true, producerId: -1n, producerEpoch: -1, ...how })
  const consuming = async (topic, groupId, autocommit) => {
    const consumer = new Consumer({ ...common, groupId, deserializers: stringDeserializers, ...member })
    const from = { mode: 'committed', fallbackMode: 'earliest', isolationLevel: 'READ_COMMITTED' }
    return [consumer, await consumer.consume({ topics: [topic], autocommit, ...from, ...member })]
  }
  return {
    async create(topic, partitions) {
      const admin = new Admin(common)
      await admin.createTopics({ topics: [topic], partitions: Number(partitions), replicas: 1 })
      await admin.close()
    },
    async send(topic, compression) {
      const producer = producerOf({ compression })
      await sendAll(some => producer.send({ messages: some.map(each => ({ topic, ...each })) }))
      await producer.close()
    },
    async read(topic, group) {
      const [consumer, stream] = await consuming(topic, group, 200)
      ended().then(() => stream.close())
      for await (const { partition, offset, value } of stream) {
        say('read', partition, offset, value)
      }
      await consumer.close(true)
    },
    async copy(from, to, name) {
      const producer = producerOf({ transactionalId: name })
      const [consumer, stream] = await consuming(from, name, false)
      const write = async some => {
        const transaction = await producer.beginTransaction()
        const messages = some.map(({ key, value, partition }) => ({ topic: to, key, value, partition }))
        await transaction.send({ messages })
        return transaction
      }
      const copyAll = async some => {
        await (await write(some)).abort()
        const transaction = await write(some)
        await transaction.addConsumer(consumer)
        const last = new Map(some.map(message => [message.partition, message]))
        for (const message of last.values()) {
          await transaction.addOffset(message)
        }
        await transaction.commit()
      }
      for await (const message of stream) {
        const some = [message]
        while (some.length < AT_ONCE && stream.readableLength > 0) {
          some.push(stream.read())
        }
        await copyAll(some)
      }
    },
  }
})

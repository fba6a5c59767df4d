// How a program of this folder is told what to do, and says what came of it: by lines, as
// tests/cluster/stock/by_lines.py has them.
import { createInterface } from 'node:readline'

export const AT_ONCE = 20
export const say = (...words) => process.stdout.write(words.join(' ') + '\n')
export const ended = () => new Promise(over => process.stdin.resume().once('end', over))

// Sends what has come so far, and then what has come meanwhile, until the input ends.
export async function sendAll(send) {
  const waiting = []
  let wake
  let isOver = false
  const lines = createInterface({ input: process.stdin })
  lines.on('line', line => {
    const [key, value] = line.split(' ')
    waiting.push({ key, value })
    wake?.()
  })
  lines.on('close', () => {
    isOver = true
    wake?.()
  })
  for (;;) {
    const some = waiting.splice(0)
    if (some.length > 0) {
      const error = await send(some).then(() => undefined, error => error)
      some.forEach(({ value }) => (error ? say('failed', value, error.message) : say('ok', value)))
    } else if (isOver) {
      return
    } else {
      await new Promise(go => (wake = go))
    }
  }
}

export async function obey(client) {
  const [what, servers, ...words] = process.argv.slice(2)
  await client(servers.split(','))[what](...words)
}

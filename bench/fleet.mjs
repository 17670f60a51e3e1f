// Runs several worker processes of one peer, and collects what they did.
import { fork } from 'node:child_process'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'

const file = fileURLToPath(new URL('worker.mjs', import.meta.url))

const atOnce = 4

/** Starts the workers; they are connected, but do not work yet. */
export async function startFleet({ peer, place, shape, count }) {
  const members = []
  // A few at a time, because fifty starts at once would time out.
  while (members.length < count) {
    const some = Array.from({ length: Math.min(atOnce, count - members.length) }, () =>
      member({ peer: peer.name, place, shape }),
    )
    members.push(...some)
    await Promise.all(some.map(({ ready }) => ready))
  }
  return {
    pids: members.map(({ child }) => child.pid),
    /** Returns the jobs begun so far, as of at most a tenth of a second ago. */
    ran: () => members.reduce((sum, { told }) => sum + told.ran, 0),
    /** Returns the claims made so far, as of at most a tenth of a second ago; undefined if no worker counts them. */
    calls() {
      const counts = members.map(({ told }) => told.calls).filter((calls) => calls !== undefined)
      return counts.length === 0 ? undefined : counts.reduce((a, b) => a + b, 0)
    },
    /** Returns the sums of the workers' further counters, by name; undefined if no worker has any. */
    tally() {
      const all = members.map(({ told }) => told.tally).filter((tally) => tally !== undefined)
      if (all.length === 0) return undefined
      const names = Object.keys(all[0])
      return Object.fromEntries(names.map((name) => [name, all.reduce((sum, tally) => sum + tally[name], 0)]))
    },
    async go() {
      for (const { child } of members) child.send({ go: true })
      await Promise.all(members.map(({ working }) => working))
    },
    /** Waits for so many jobs in total, at most `limitS` seconds; resolves to false if it took longer. */
    async until(goal, limitS = Infinity) {
      const sinceMs = performance.now()
      while (this.ran() < goal) {
        if (performance.now() - sinceMs > limitS * 1000) return false
        await sleep(20)
      }
      return true
    },
    /** Ends all workers; resolves to the report of each: { times, keys, rssMb }. */
    async stop() {
      for (const { child } of members) child.send({ stop: true })
      return Promise.all(members.map(({ result }) => result))
    },
  }
}

function member(asked) {
  const child = fork(file, [], { stdio: ['ignore', 2, 2, 'ipc'] })
  const told = { ran: 0 }
  const heard = { ready: () => {}, working: () => {}, result: () => {} }
  const promise = (name) =>
    new Promise((resolve, reject) => {
      heard[name] = resolve
      child.once('exit', (code, signal) => reject(new Error(`a worker ended with ${signal ?? `code ${code}`}`)))
    })
  const [ready, working, result] = [promise('ready'), promise('working'), promise('result')]
  // Waiters get the error; without a waiter it must not end this process.
  for (const each of [ready, working, result]) each.catch(() => {})
  child.on('message', (message) => {
    if (message.ran !== undefined) Object.assign(told, message)
    for (const name of ['ready', 'working', 'result']) if (message[name] !== undefined) heard[name](message[name])
  })
  child.send(asked)
  return { child, told, ready, working, result }
}

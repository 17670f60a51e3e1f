// Shared by the scenarios of limits in Redis: Sluice on PostgreSQL and Redis, with its calls counted.
import { drainedAt, farBelow } from './limited.mjs'
import sluice, { open } from './peers/sluice.mjs'

/** Opens a connection like Sluice's own (src/redis/connect.ts); `tally` counts its calls. */
async function countingClient(url, tally) {
  const { Redis } = await import('ioredis')
  const redis = new Redis(url, {
    lazyConnect: true,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    enableOfflineQueue: false,
    commandTimeout: 1_000,
    retryStrategy: () => 50,
  })
  redis.on('error', () => {})
  await redis.connect()
  return {
    async send(command, args) {
      const call = ['EVALSHA', 'EVAL'].includes(command) ? JSON.parse(args.at(-1)) : {}
      // If Redis does not have a script, it is sent again with its text.
      if (command === 'EVALSHA') {
        if (call.items !== undefined) tally.reserves += 1
        if (call.acts !== undefined) tally.settles += 1
      }
      const reply = await redis.call(command, ...args)
      if (reply?.[0] === 'decided') count(call, reply.slice(4).map(Number), tally)
      return reply
    },
    close: () => redis.disconnect(),
  }
}

/** Counts the grants, denials and refunds of an answer (docs/redis-protocol.md). */
function count({ items, acts, ahead }, numbers, tally) {
  for (const [i, { want }] of (items ?? []).entries()) {
    const granted = numbers[i * (ahead === undefined ? 3 : 6)]
    tally.grants += granted
    tally.vain += want - granted
  }
  for (const [i, { grant, ended }] of (acts ?? []).entries()) {
    if (grant !== undefined && ended === undefined) tally.refunds += Math.max(-numbers[i], 0)
  }
}

/** Makes the peer; with `published` other programs can take from its limits. */
export function sluiceSharing({ name, published }) {
  return {
    ...sluice,
    name,
    packages: ['sluice', 'pg', 'ioredis'],
    server: ['postgres', 'redis'],
    settings: (shape) => `${sluice.settings(shape)}, shared in Redis${published ? ', published' : ''}`,
    async open(place, shape) {
      const tally = { reserves: 0, settles: 0, grants: 0, vain: 0, refunds: 0 }
      const redis = await countingClient(place.redis.url, tally)
      const session = await open(place, { ...shape, published }, redis)
      return {
        ...session,
        /** Calls for grants in Redis. */
        calls: () => tally.reserves,
        tally: () => ({ ...tally, claims: session.calls() }),
        async close() {
          await session.close()
          redis.close()
        },
      }
    },
  }
}

/** 5,000 jobs at 100 a minute, where a second stands for a minute. */
export const sharedAt = ({ name, workers }) =>
  drainedAt({
    name,
    workers,
    jobs: 5_000,
    rate: '100/s',
    isPaced: true,
    runs: 1,
    peers: ['sluice-redis', 'sluice-redis-own', 'sluice', 'bullmq', 'dbos', 'celery-redis', 'celery-published'],
  })

/** The same limit with a backlog far above it. */
export const sharedFarBelow = ({ name, workers }) =>
  farBelow({ name, workers, peers: ['sluice-redis', 'sluice-redis-own', 'bullmq', 'dbos'] })

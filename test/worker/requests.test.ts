/** Requests of a handler, the silence that answers demand, and the usage that the handler settles: see ends.test.ts. */
import { expect } from 'vitest'
import { check, rateLimited } from '../../src/index.ts'
import { closed, codeOf, cost, late, once, patient, play, raise, silence } from './stage.ts'

play({
  // Requests.
  'makes one request': { left: 1, state: 'done', run: async ({ fetch }) => void (await fetch('/')) },
  'makes three requests, two at once': {
    left: 3,
    state: 'done',
    run: async ({ fetch }) => {
      await fetch('/')
      await Promise.all([fetch('/'), fetch('/')])
    },
  },
  'follows a redirect': { left: 2, state: 'done', run: async ({ fetch }) => void (await fetch('/moved')) },
  'gets a closed connection instead of an answer': { left: 3, state: 'failed', run: ({ fetch }) => fetch('/cut') },
  'makes a request that is refused for its address': {
    left: 0,
    state: 'failed',
    run: ({ fetch }) => fetch('http://10.0.0.1/'),
  },
  'makes a request that is refused for the address of its name': {
    left: 0,
    state: 'failed',
    run: ({ fetch }) => fetch('http://localhost:1026/'),
  },
  'makes a further request that is refused for the address of its name': {
    left: 1,
    state: 'failed',
    run: async ({ fetch }) => {
      await fetch('/')
      await fetch('http://localhost:1026/')
    },
  },
  'makes a further request of another cost that is refused for the address of its name': {
    left: 1,
    state: 'failed',
    run: async ({ context, fetch }) => {
      await fetch('/')
      await context.fetch('http://localhost:1026/', { cost: { tokens: 300 } })
    },
  },
  'makes a further request that is given up while it waits': {
    left: 1,
    state: 'done',
    heldMs: 300_000,
    run: async (turn) => {
      await turn.fetch('/')
      await silence(turn, 300_000)
      expect(await codeOf(turn.fetch('/', { signal: AbortSignal.timeout(200) }))).toBeDefined()
    },
  },
  'makes a further request for which there is no room before its time is over': {
    left: 1,
    state: 'scheduled',
    heldMs: 3_600_000,
    task: { timeout: '10min' },
    run: async (turn) => {
      await turn.fetch('/')
      await silence(turn, 3_600_000)
      await turn.fetch('/')
    },
  },
  'makes further requests after it was cancelled': {
    left: 1,
    state: 'cancelled',
    run: async ({ fetch, stage }) => {
      await fetch('/')
      await stage.sluice.jobs.cancel(stage.job)
      expect(await codeOf(fetch('/'))).toBe('SLUICE_JOB_LOST')
    },
  },
  'is charged for refused connections, so that a vendor that is down does not get more requests': {
    left: 0,
    tried: 3,
    state: 'failed',
    run: ({ fetch }) => fetch(`http://${closed}`),
  },

  // Answers that demand silence.
  'gets a 429 with Retry-After': {
    left: 1,
    state: 'scheduled',
    heldMs: 30_000,
    run: async ({ fetch }) => raise(rateLimited(await fetch('/429?after=30'))),
  },
  'gets a 429 without Retry-After': {
    left: 1,
    state: 'scheduled',
    heldMs: 1_000,
    task: patient,
    run: async ({ fetch }) => raise(rateLimited(await fetch('/429'))),
  },
  'gets a 429 that demands two hours, and waits for one, the cap': {
    left: 1,
    state: 'scheduled',
    heldMs: 3_600_000,
    run: async ({ fetch }) => raise(rateLimited(await fetch('/429?after=7200'))),
  },
  'gets a 503 with Retry-After': {
    left: 1,
    state: 'scheduled',
    heldMs: 7_000,
    run: async ({ fetch }) => raise(rateLimited(await fetch('/503?after=7'))),
  },
  'gets a 503 without Retry-After': {
    left: 1,
    state: 'scheduled',
    heldMs: 1_000,
    task: patient,
    run: async ({ fetch }) => raise(rateLimited(await fetch('/503'))),
  },
  'a 429 with Retry-After that is checked: held once': {
    left: 1,
    state: 'scheduled',
    heldMs: 30_000,
    run: async ({ fetch }) => check(await fetch('/429?after=30')),
  },
  'at most once, its only request is answered 429, which is checked': {
    left: 1,
    state: 'scheduled',
    heldMs: 1_000,
    task: { ...once, ...patient },
    run: async ({ fetch }) => check(await fetch('/429')),
  },
  'a 500 that is checked': {
    left: 1,
    state: 'scheduled',
    task: patient,
    run: async ({ fetch }) => check(await fetch('/500')),
  },
  'a 404 that is checked': { left: 1, state: 'failed', run: async ({ fetch }) => check(await fetch('/404')) },
  'in mode at-most-once gets a 429 for its only request': {
    left: 1,
    state: 'scheduled',
    heldMs: 30_000,
    task: once,
    run: async ({ fetch }) => raise(rateLimited(await fetch('/429?after=30'))),
  },
  'in mode at-most-once gets a 429 for its second request': {
    left: 2,
    state: 'failed',
    heldMs: 1_000,
    task: once,
    run: async ({ fetch }) => {
      await fetch('/')
      raise(rateLimited(await fetch('/429')))
    },
  },

  // The handler settles its real usage.
  'settles for less': { left: 1, tokens: 400, state: 'done', run: ({ context }) => context.settle({ tokens: 400 }) },
  'settles for more': {
    left: 1,
    tokens: 2_500,
    state: 'done',
    run: ({ context }) => context.settle({ tokens: 2_500 }),
  },
  'settles twice': {
    left: 1,
    tokens: 400,
    state: 'done',
    run: async ({ context }) => {
      await context.settle({ tokens: 400 })
      await context.settle({ tokens: 7 })
    },
  },
  'settles for three requests': {
    left: 3,
    tokens: 500,
    state: 'done',
    run: async ({ context, fetch }) => {
      await fetch('/')
      await fetch('/')
      await fetch('/')
      await context.settle({ tokens: 500 })
    },
  },
  'settles in each of two attempts': {
    left: 2,
    tokens: 700,
    state: 'done',
    calls: 2,
    isOver: ({ calls }) => calls.length === 2,
    run: async ({ n, context }) => {
      await context.settle({ tokens: n === 1 ? 400 : 300 })
      if (n === 1) throw new Error('as if')
    },
  },
  'settles, and makes one more request': {
    left: 2,
    tokens: 400 + cost,
    state: 'done',
    run: async ({ context, fetch }) => {
      await fetch('/')
      await context.settle({ tokens: 400 })
      await fetch('/')
    },
  },
  'settles before its first request, for which its grant is too old then': {
    left: 1,
    tokens: 400 + cost,
    state: 'done',
    run: async ({ context, fetch, stage }) => {
      await context.settle({ tokens: 400 })
      late(stage)
      await fetch('/')
    },
  },
  'settles before a request that is refused for its address': {
    left: 0,
    tokens: 400,
    state: 'failed',
    run: async ({ context, fetch }) => {
      await context.settle({ tokens: 400 })
      await fetch('http://10.0.0.1/')
    },
  },
  'settles after a further grant was given back': {
    left: 1,
    tokens: 400,
    state: 'done',
    run: async ({ context, fetch }) => {
      await fetch('/')
      await codeOf(fetch('http://localhost:1026/'))
      await context.settle({ tokens: 400 })
    },
  },
  'settles after its own grant was given back': {
    left: 1,
    tokens: 2_500,
    state: 'done',
    run: async ({ context, fetch, stage }) => {
      late(stage)
      await fetch('/')
      await context.settle({ tokens: 2_500 })
    },
  },
})

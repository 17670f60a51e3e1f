// The behaviour of the jobs of the outlets' suite, in any process; also the module of a task that runs in threads.
import { existsSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

/** Waits, in its first `held` attempts, until the file `gate` exists; its first `fails` attempts fail. */
export default async function play({ gate, held = Infinity, fails = 0 }, { attempt }) {
  while (gate !== undefined && attempt <= held && !existsSync(gate)) await sleep(10)
  if (attempt <= fails) throw new Error('as it was to')
  return { attempt }
}

// The remote end of an outlet: it executes in a thread of its own, and its reports are unreliable.
import { parentPort } from 'node:worker_threads'
import play from './play.mjs'

/** Reports after up to 30 ms, so that reports may arrive in another order than the ends. */
const report = (message) => setTimeout(() => parentPort.postMessage(message), Math.random() * 30)

parentPort.on('message', (job) => void execute(job))

async function execute({ key, input, attempt }) {
  report({ key, what: 'began', attempt })
  const ended = await play(input, { attempt }).then(
    (result) => ({ result: JSON.stringify(result) }),
    (error) => ({ error: JSON.stringify({ message: error.message }) }),
  )
  if (input.isLost && attempt === 1) return
  report({ key, what: 'ended', ...ended })
  if (Math.random() < 0.5) report({ key, what: 'ended', ...ended })
}

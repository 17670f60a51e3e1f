/** The client of examples/python, run by tests. */
import { type ChildProcess, spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

const here = fileURLToPath(new URL('.', import.meta.url))
const examples = fileURLToPath(new URL('../../examples/python', import.meta.url))

/** The arguments of limits.py. */
export type Want = [limit: string, key?: string | null, units?: number]
/** The reply of caller.py. */
export type Told = { value?: unknown; error?: string; text?: string; wait?: number | null }

/** A process in Python that gets commands. */
export class Caller {
  readonly #child: ChildProcess
  readonly #waiting: ((told: Told) => void)[] = []
  #log = ''

  constructor(python: string, url: string, prefix = 'app:', domain = 'crm') {
    const env = { ...process.env, PYTHONPATH: examples, PYTHONDONTWRITEBYTECODE: '1' }
    this.#child = spawn(python, [`${here}/caller.py`, url, prefix, domain], { env })
    this.#child.stderr?.on('data', (text) => (this.#log += String(text)))
    const lines = this.#child.stdout === null ? undefined : createInterface(this.#child.stdout)
    lines?.on('line', (line) => this.#waiting.shift()?.(JSON.parse(line) as Told))
    this.#child.once('exit', () => {
      for (const one of this.#waiting.splice(0)) one({ error: 'gone', text: this.#log })
    })
  }

  /** Runs one act of caller.py, after those before. */
  ask(...words: unknown[]): Promise<Told> {
    return new Promise((resolve) => {
      this.#waiting.push(resolve)
      this.#child.stdin?.write(`${JSON.stringify(words)}\n`)
    })
  }

  /** Kills it. */
  end(): void {
    this.#child.kill('SIGKILL')
  }
}

/**
 * `sluice demo`: 1,500 jobs of five accounts with very different backlogs, against a vendor that allows each account 100
 * requests per 10 s, and all of them together 250. The vendor is a separate process and counts for itself.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createReadStream, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { Command, Option } from 'commander'
import { parse } from 'csv-parse'
import {
  type AnyTask,
  check,
  type Guarantee,
  guarantees,
  limit,
  Sluice,
  systemClock,
  task,
  useSluice,
  type Verification,
} from '../index.ts'
import { openStore } from '../db/open.ts'
import { sqlOn } from '../db/store.ts'
import type { Report } from '../testing/vendor.ts'
import { contactSchema } from './contact.ts'
import { whole } from './settings.ts'
import { inWords } from './verify.ts'

interface DemoOptions {
  workers: number
  concurrency: number
  store?: string
  from: string
  json?: boolean
  vendor?: string
  schema?: string
}

const accountLimit = limit('demo-account', { rate: '100/10s', by: 'accountId' })
const totalLimit = limit('demo-total', { rate: '250/10s' })
const schemaName = 'sluice_demo'
const csvFile = fileURLToPath(new URL('../../examples/contacts.csv', import.meta.url))

/** `sluice demo`. */
export function demoCommand(): Command {
  return new Command('demo')
    .description('run 1,500 jobs against a stand-in for a vendor, and prove that no window was exceeded')
    .option('--workers <n>', 'worker processes; 0: one worker in this process', whole(0, 1_000), 0)
    .option('-c, --concurrency <n>', 'attempts at once in each worker', whole(1, 1_000), 10)
    .option(
      '--store <store>',
      'postgres://… (drops and creates the schema sluice_demo) or a directory; default: a temporary directory',
    )
    .option('--from <file>', 'CSV file with the columns accountId and contactId', csvFile)
    .option('--json', 'print the result as one line of JSON')
    .addOption(new Option('--vendor <url>').hideHelp())
    .addOption(new Option('--schema <name>').hideHelp())
    .action(async (options: DemoOptions, command: Command) => {
      const all = { ...command.optsWithGlobals(), ...options } as DemoOptions
      if (all.vendor === undefined) process.exitCode = await demo(all)
      else await workerProcess(all as DemoOptions & { vendor: string })
    })
}

function syncContact(vendorUrl: string): AnyTask {
  return task('demo-sync-contact', {
    input: contactSchema,
    limits: [accountLimit, totalLimit],
    allowPrivate: ['127.0.0.1'],
    async run({ accountId, contactId }, { fetch, job }) {
      const response = await fetch(`${vendorUrl}/contacts/${contactId}`, {
        method: 'POST',
        headers: { 'x-account': accountId, 'idempotency-key': job.id },
      })
      await (await check(response)).text()
      return response.status
    },
  }) as unknown as AnyTask
}

async function demo(options: DemoOptions): Promise<number> {
  const { workers, concurrency } = options
  const talk = (line: string) => void process.stderr.write(`${line}\n`)
  const temporary = options.store === undefined ? mkdtempSync(join(tmpdir(), 'sluice-demo-')) : undefined
  const vendorProcess = startVendor()
  const children: ChildProcess[] = []
  const store = options.store ?? join(temporary as string, 'data')
  talk(`opening ${temporary === undefined ? schemaName : 'an embedded store'} …`)
  let sluice: Sluice | undefined
  try {
    sluice = await openFresh(store)
    const vendorUrl = await vendorProcess.url
    const sync = syncContact(vendorUrl)
    useSluice(sluice)
    for (const promise of guarantees(accountLimit)) talk(`limit demo-account, for each account: ${promise.text}`)
    for (const promise of guarantees(totalLimit)) talk(`limit demo-total: ${promise.text}`)
    for (let i = 0; i < workers; i++) children.push(startWorker(vendorUrl, sluice.url ?? store, options))
    await waitForWorkers(sluice, children)
    const perAccount = new Map<string, number>()
    const begun = systemClock.monotonicMs()
    const { length: jobs } = await sluice.sendMany(sync, rows(options.from, perAccount))
    talk(`${jobs} jobs sent: ${[...perAccount].map(([account, n]) => `${account} ${n}`).join(', ')}`)
    // A worker in this process starts after all jobs are sent; worker processes are ready and begin with the first job.
    const started = workers === 0 ? systemClock.monotonicMs() : begun
    if (workers === 0) await sluice.work([sync], { concurrency })
    const ended = await progress(sluice, jobs, started, ideal(perAccount), talk)
    await Promise.all(children.map(stopChild))
    const [report, proof] = [await vendorProcess.report(), await sluice.verify()]
    const seconds = (systemClock.monotonicMs() - started) / 1000
    return summary({ report, proof, ended, jobs, seconds, idealSeconds: ideal(perAccount) }, options, talk)
  } finally {
    for (const child of children) child.kill('SIGKILL')
    vendorProcess.kill()
    await sluice?.close()
    if (temporary !== undefined) rmSync(temporary, { recursive: true, force: true })
  }
}

async function openFresh(store: string): Promise<Sluice> {
  const { db } = await openStore({ store, clock: systemClock })
  await db.query(`drop schema if exists ${schemaName} cascade`)
  await db.close()
  return Sluice.open({ store, redis: '', schema: schemaName })
}

async function* rows(file: string, perAccount: Map<string, number>): AsyncIterable<unknown> {
  const parser = createReadStream(file).pipe(parse({ columns: true, trim: true }))
  for await (const row of parser as AsyncIterable<{ accountId: string; contactId: string }>) {
    perAccount.set(row.accountId, (perAccount.get(row.accountId) ?? 0) + 1)
    yield { accountId: row.accountId, contactId: row.contactId }
  }
}

/** Returns the least time that the guarantees allow, in seconds: the largest (jobs - burst) / rate of all limits. */
function ideal(perAccount: Map<string, number>): number {
  const time = (jobs: number, [promise]: Guarantee[]) =>
    promise === undefined ? 0 : Math.max(0, jobs - promise.burst) / promise.perSecond
  const total = [...perAccount.values()].reduce((sum, jobs) => sum + jobs, 0)
  return Math.max(
    time(total, guarantees(totalLimit)),
    ...[...perAccount.values()].map((jobs) => time(jobs, guarantees(accountLimit))),
  )
}

async function progress(
  sluice: Sluice,
  jobs: number,
  started: number,
  idealSeconds: number,
  talk: (line: string) => void,
): Promise<Ended> {
  const live = process.stderr.isTTY
  for (let looks = 0; ; looks++) {
    const ended = await count(sluice)
    const over = ended.done + ended.failed
    const seconds = (systemClock.monotonicMs() - started) / 1000
    const filled = Math.floor((30 * over) / jobs)
    const line = `[${'#'.repeat(filled)}${'.'.repeat(30 - filled)}] ${over}/${jobs} after ${seconds.toFixed(0)} s (ideal ${idealSeconds.toFixed(0)} s)`
    if (live) process.stderr.write(`\r${line}`)
    else if (looks % 25 === 0) talk(line)
    if (over >= jobs) {
      if (live) talk('')
      return ended
    }
    await systemClock.sleep(200)
  }
}

/** Waits until all worker processes have started, which takes seconds and must not count as time of the jobs. */
async function waitForWorkers(sluice: Sluice, children: readonly ChildProcess[]): Promise<void> {
  while ((await sluice.jobs.status()).workers !== children.length) {
    if (children.some(hasEnded)) throw new Error('a worker process has ended before it began; its own error is above')
    await systemClock.sleep(100)
  }
}

interface Ended {
  done: number
  failed: number
}

async function count(sluice: Sluice): Promise<Ended> {
  const [row] = await sqlOn(sluice.db, schemaName).query<{ done: string; failed: string }>(
    'select (select count(*) from sluice.done) as done, (select count(*) from sluice.failed) as failed',
  )
  return { done: Number(row?.done), failed: Number(row?.failed) }
}

/** A run of the demo. */
interface Run {
  /** What the vendor has counted. */
  report: Report
  proof: Verification
  ended: Ended
  jobs: number
  seconds: number
  idealSeconds: number
}

function summary(
  { report, proof, ended, jobs, seconds, idealSeconds }: Run,
  { json }: DemoOptions,
  talk: (line: string) => void,
): number {
  const exceeded = report.rules.reduce((sum, rule) => sum + rule.exceeded, 0)
  talk(`done ${ended.done}, failed ${ended.failed}, 429s of the vendor ${report.vendor429}`)
  for (const rule of report.rules) {
    talk(
      `${rule.name}: at most ${rule.worst} arrivals in any ${rule.windowMs / 1000} s, cap ${rule.limit}${rule.exceeded > 0 ? ` EXCEEDED ${rule.exceeded} times` : ''}`,
    )
  }
  for (const rule of proof.rules) talk(`by the ledger: ${inWords(rule)}${rule.exceeded > 0 ? '' : ': proved'}`)
  talk(
    `${seconds.toFixed(1)} s; the guarantees allow ${idealSeconds.toFixed(1)} s (ratio ${(seconds / idealSeconds).toFixed(3)})`,
  )
  const result = {
    jobs,
    done: ended.done,
    failed: ended.failed,
    vendor429: report.vendor429,
    exceeded,
    // The proof behind `exceeded: 0`.
    guarantees: proof.rules.map(({ guarantee, rate }) => `${guarantee} ${rate}`),
    proved: proof.isProved,
    seconds: round(seconds),
    idealSeconds: round(idealSeconds),
  }
  if (json) process.stdout.write(`${JSON.stringify(result)}\n`)
  return ended.done === jobs && exceeded === 0 && proof.isProved ? 0 : 1
}

function startVendor(): { url: Promise<string>; report(): Promise<Report>; kill(): void } {
  const rules = [
    {
      name: 'each account, safe rate',
      algorithm: 'sliding log',
      limit: 100,
      windowMs: 10_000,
      key: 'header:x-account',
    },
    { name: 'all together, safe rate', algorithm: 'sliding log', limit: 250, windowMs: 10_000 },
  ]
  const file = fileURLToPath(new URL('../testing/serve.js', import.meta.url))
  const child = spawn(process.execPath, [file, JSON.stringify({ rules })], { stdio: ['pipe', 'pipe', 'inherit'] })
  const lines: string[] = []
  const reader = createInterface(child.stdout)
  const url = once(reader, 'line').then(([line]) => String(line))
  reader.on('line', (line) => lines.push(line))
  const closed = once(reader, 'close')
  return {
    url,
    async report() {
      child.stdin.end()
      await closed
      return JSON.parse(lines.at(-1) ?? '') as Report
    },
    kill: () => void child.kill('SIGKILL'),
  }
}

function startWorker(vendorUrl: string, store: string, options: DemoOptions): ChildProcess {
  const main = fileURLToPath(new URL('../cli/main.js', import.meta.url))
  return spawn(
    process.execPath,
    [main, 'demo', '--vendor', vendorUrl, '--store', store, '--schema', schemaName, '-c', String(options.concurrency)],
    {
      stdio: ['ignore', 'inherit', 'inherit'],
    },
  )
}

function hasEnded({ exitCode, signalCode }: ChildProcess): boolean {
  return exitCode !== null || signalCode !== null
}

async function stopChild(child: ChildProcess): Promise<void> {
  if (hasEnded(child)) return
  const ended = once(child, 'exit')
  child.kill('SIGTERM')
  await ended
}

async function workerProcess(options: DemoOptions & { vendor: string }): Promise<void> {
  const sluice = await Sluice.open({ schema: schemaName, store: options.store })
  await sluice.work([syncContact(options.vendor)], { concurrency: options.concurrency })
  await once(process, 'SIGTERM')
  await sluice.close()
}

function round(value: number): number {
  return Math.round(value * 100) / 100
}

/** `sluice init`: writes a config and a first task that runs at once. */
import fs from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { Command } from 'commander'
import { UsageError } from '../core/errors.ts'
import { output } from './output.ts'
import type { Globals } from './settings.ts'

const files: Record<string, string> = {
  'sluice.config.ts': `import { defineConfig } from 'sluice'

export default defineConfig({
  // Where jobs are kept. Default: DATABASE_URL, else this directory (PostgreSQL embedded in the process).
  // store: '.sluice/data',
  concurrency: 10,
  tasks: './tasks.ts',
})
`,
  'tasks.ts': `import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { check, limit, task } from 'sluice'
import { z } from 'zod'

// Never more than 100 calls in any minute for each CRM account, across every worker you run.
const crm = limit('crm', { rate: '100/min', by: 'accountId' })

export const syncContact = task('sync-contact', {
  input: z.object({ accountId: z.string(), contactId: z.string() }), // any Standard Schema
  limits: [crm],
  allowPrivate: ['127.0.0.1'], // the stand-in for the vendor; public addresses need no permission
  async run({ accountId, contactId }, { fetch }) {
    const response = await fetch(\`\${await vendor()}/accounts/\${accountId}/contacts/\${contactId}\`)
    await check(response) // 429: this account waits, on every worker; 5xx: retried for hours; other 4xx: failed
    return await response.json()
  },
})

// A stand-in for the vendor, so that this runs at once. Replace it with your vendor's address.
let address: Promise<string> | undefined
function vendor(): Promise<string> {
  address ??= new Promise((resolve) => {
    const server = createServer((request, response) => {
      response.setHeader('content-type', 'application/json')
      response.end(JSON.stringify({ synced: request.url }))
    })
    server.listen(0, '127.0.0.1', () => resolve(\`http://127.0.0.1:\${(server.address() as AddressInfo).port}\`))
    server.unref()
  })
  return address
}
`,
}

const packageFile = `{
  "private": true,
  "type": "module"
}
`

/** `sluice init`. */
export function initCommand(): Command {
  return new Command('init')
    .description('write sluice.config.ts and tasks.ts here, and package.json if there is none')
    .option('-y, --yes', 'overwrite existing files')
    .option('--dry-run', 'only print which files would be written')
    .action(init)
}

function init(flags: { yes?: boolean; dryRun?: boolean }, command: Command): void {
  const out = output(command.optsWithGlobals<Globals>())
  const taken = Object.keys(files).filter((name) => fs.existsSync(name))
  if (taken.length > 0 && flags.yes !== true) {
    throw new UsageError(
      'SLUICE_FILE_EXISTS',
      `${taken.join(' and ')} would be overwritten; use --yes, or another directory`,
    )
  }
  // Without `type` Node and TypeScript would read tasks.ts as CommonJS. An existing package.json is not changed.
  const isNew = !fs.existsSync('package.json')
  const made = isNew ? { 'package.json': packageFile, ...files } : files
  for (const [name, text] of Object.entries(made)) {
    if (flags.dryRun !== true) fs.writeFileSync(name, text)
    const file = path.resolve(name)
    if (out.json) out.object({ file, written: flags.dryRun !== true })
    else out.line(file)
  }
  if (!isNew && !isModule()) out.hint('npm pkg set type=module')
  const missing = [
    ...(isInstalled('sluice') ? [] : [fileURLToPath(new URL('../..', import.meta.url)).replace(/[\\/]$/, '')]),
    ...(isInstalled('zod') ? [] : ['zod']),
  ]
  if (missing.length > 0) out.hint(`npm install ${missing.map(quoted).join(' ')}`)
  out.hint('`npx sluice dev`, then in another terminal:')
  out.hint(`\`npx sluice send sync-contact '{"accountId":"a1","contactId":"7"}' --repeat 500\``)
}

function isModule(): boolean {
  try {
    return (JSON.parse(fs.readFileSync('package.json', 'utf8')) as { type?: unknown }).type === 'module'
  } catch {
    return false
  }
}

/** Returns whether a file in this directory could import the package. */
function isInstalled(name: string, dir = process.cwd()): boolean {
  if (fs.existsSync(path.join(dir, 'node_modules', name))) return true
  return path.dirname(dir) !== dir && isInstalled(name, path.dirname(dir))
}

function quoted(word: string): string {
  return /^[\w./:\\@-]+$/.test(word) ? word : `"${word}"`
}

/** The files that `sluice init` writes, by the kind of project that it finds. */

/** The kinds of projects: how a file of theirs is a module. */
export type Kind = 'typescript' | 'typescript-commonjs' | 'module' | 'commonjs'

/** The end of a file's name: in a CommonJS project only `.mts` lets TypeScript write `import`. */
const ends: Record<Kind, string> = { typescript: 'ts', 'typescript-commonjs': 'mts', module: 'js', commonjs: 'js' }

const packageFile = `{
  "private": true,
  "type": "module"
}
`

/** Returns the files of a kind of project by name. `isNew`: there is no package.json yet. */
export function filesFor(kind: Kind, isNew: boolean): Record<string, string> {
  const end = ends[kind]
  return {
    ...(isNew ? { 'package.json': packageFile } : {}),
    [`sluice.config.${end}`]: configFor(kind, `./tasks.${end}`),
    [`tasks.${end}`]: tasksFor(kind),
  }
}

/** Returns whether the tasks of a kind of project import Zod, which gives inputs their types. */
export function usesZod(kind: Kind): boolean {
  return kind.startsWith('typescript')
}

function configFor(kind: Kind, tasks: string): string {
  const fields = `{
  // Where jobs are kept. Default: DATABASE_URL, else this directory (PostgreSQL embedded in the process).
  // store: '.sluice/data',
  concurrency: 10,
  tasks: '${tasks}',
}`
  if (kind === 'commonjs') return `module.exports = ${fields}\n`
  return `import { defineConfig } from 'sluice'\n\nexport default defineConfig(${fields})\n`
}

function tasksFor(kind: Kind): string {
  const isModule = kind !== 'commonjs'
  const bring = (names: string, from: string) =>
    isModule ? `import { ${names} } from '${from}'` : `const { ${names} } = require('${from}')`
  const imports = [bring('check, limit, task', 'sluice'), bring('vendor', 'sluice/testing')]
  const input = usesZod(kind)
    ? '  input: z.object({ accountId: z.string(), contactId: z.string() }), // any Standard Schema\n'
    : ''
  return `${[...imports, ...(usesZod(kind) ? [bring('z', 'zod')] : [])].join('\n')}

// Never more than 100 calls in any minute for each CRM account, across every worker you run.
const crm = limit('crm', { rate: '100/min', by: 'accountId' })

${isModule ? 'export const syncContact' : 'exports.syncContact'} = task('sync-contact', {
${input}  limits: [crm],
  allowPrivate: ['127.0.0.1'], // the stand-in for the vendor; public addresses need no permission
  async run({ accountId, contactId }, { fetch }) {
    const response = await fetch(\`\${await address()}/accounts/\${accountId}?contact=\${contactId}\`)
    await check(response) // 429: this account waits, on every worker; 5xx: retried for hours; other 4xx: failed
    return { status: response.status }
  },
})

// A stand-in for the vendor, so that this runs at once. It counts for each account, and answers 429 beyond its limit.
const standIn = vendor({ rules: [{ algorithm: 'sliding log', limit: 100, windowMs: 60_000, key: 'path' }] })
let listening${kind.startsWith('typescript') ? ': Promise<string> | undefined' : ''}
const address = () => (listening ??= standIn.listen())
`
}

// Runs the static checks that every commit must pass: `npm run check`. With --census it only prints measures of the repository
// (census.mjs), with --census --server also how many statements a claim starts.
import { execSync } from 'node:child_process'
import { delimiter, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { census } from './census.mjs'

const root = fileURLToPath(new URL('..', import.meta.url))
const env = { ...process.env, PATH: `${join(root, 'node_modules', '.bin')}${delimiter}${process.env.PATH}` }
const options = { cwd: root, env, stdio: 'inherit' }
const isWithServer = process.argv.includes('--server')

try {
  if (process.argv.includes('--census')) {
    if (isWithServer) execSync('node scripts/setup.mjs', options)
    await census(isWithServer)
  } else {
    execSync('node scripts/embed.mjs --check', options)
    execSync('node scripts/mutations.mjs --check', options)
    // What did not change since the last check is not checked again.
    execSync('tsc -p tsconfig.json --incremental --tsBuildInfoFile node_modules/.cache/check.tsbuildinfo', options)
    execSync('oxlint --type-aware', options)
    execSync('oxfmt --check', options)
    execSync('knip', options)
  }
} catch (error) {
  if (error.status === undefined) throw error
  process.exitCode = 1
}

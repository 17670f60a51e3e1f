import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: ['test/servers/setup.ts'],
    pool: 'forks',
    // Many tests measure rates: more files at once than this would measure each other.
    maxWorkers: 2,
    // On a shared machine a moment of starvation fails a measurement now and then; the output marks what was tried again.
    // At a developer's desk nothing is.
    retry: process.env['CI'] === undefined ? 0 : 1,
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
})

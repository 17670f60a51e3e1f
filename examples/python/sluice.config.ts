/** Where jobs go and which of them do not run, for all who send: Python too. */
import { defineConfig, rule } from 'sluice'

export default defineConfig({
  tasks: './tasks.ts',
  routes: { welcome: 'mail' },
  rules: [
    rule<{ email: string }>('test-address', {
      tasks: 'welcome',
      when: ({ input }) => input.email.endsWith('@example.com'),
      do: { discard: 'a test address' },
    }),
  ],
})

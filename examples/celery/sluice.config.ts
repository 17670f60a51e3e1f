import { defineConfig } from 'sluice'

export default defineConfig({ tasks: './tasks.ts' })

// 2,000 jobs at 200 a second whose calls are spaced, one worker process; the way to the vendor may vary by 10 ms.
import { drainedAt } from '../limited.mjs'

const numbers = { rate: '200/s', spacing: { burst: 0, transit: '10ms' }, workers: 1 }

export default drainedAt({
  name: 'spaced-1',
  workers: 1,
  peers: ['sluice'],
  full: { jobs: 2_000, ...numbers },
  quick: { jobs: 600, ...numbers },
})

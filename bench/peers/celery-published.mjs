// Celery with Redis and the token bucket as it was published: a task that is denied more often than Celery retries is dropped.
import { celeryOn } from '../celery.mjs'

export default celeryOn({ name: 'celery-published', server: 'redis', task: 'published' })

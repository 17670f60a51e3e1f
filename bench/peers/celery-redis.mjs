// Celery with Redis as its broker.
import { celeryOn } from '../celery.mjs'

export default celeryOn({ name: 'celery-redis', server: 'redis' })

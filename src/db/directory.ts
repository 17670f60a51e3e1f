/** Names in directories that outlive a crash of the machine. Not in disk.ts, because to import that loads the embedded engine. */
import fs from 'node:fs'

/** Makes the names in a directory durable. */
export function syncDirectory(dir: string): void {
  // Windows cannot open a directory; its file system journals names.
  if (process.platform === 'win32') return
  const fd = fs.openSync(dir, 'r')
  fs.fsyncSync(fd)
  fs.closeSync(fd)
}

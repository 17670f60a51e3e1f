/** The user who runs this process. */
import os from 'node:os'

/** Returns the user of this process: user@host. */
export function currentUser(): string {
  const user = () => {
    try {
      return os.userInfo().username
    } catch {
      // A container may run as a user without a name.
      return String(process.getuid?.() ?? 'unknown')
    }
  }
  return `${user()}@${os.hostname()}`
}

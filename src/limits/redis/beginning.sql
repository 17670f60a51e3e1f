-- Says anew that the epoch $1 is being begun, if it still is the one that counts: for so long nobody takes it over
-- (succeed).
update sluice.shared set at = sluice.now() where epoch = $1 returning 1

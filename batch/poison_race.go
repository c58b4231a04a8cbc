//go:build race || invariants

package batch

// poisoned says that released memory is overwritten, so that who still reads it is seen: by the bytes, or by the race detector.
const poisoned = true

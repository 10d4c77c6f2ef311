package logs

import "time"

// shortestInterval is the shortest pause between checks of sizes. Within it, a container
// that writes 100 MB a second exceeds the maximum size of its log by 50 MB.
const shortestInterval = 500 * time.Millisecond

// growth is the sizes of logs in bytes, by path, at the last check.
type growth struct {
	at    time.Time
	sizes map[string]int64
}

// next stores the sizes of a check, and returns the time until the first log reaches the
// maximum size if all go on growing as they have since the check before: from
// shortestInterval to longest. Logs that have reached it were rotated, and begin again.
func (g *growth) next(now time.Time, sizes map[string]int64, maximum int64, longest time.Duration) time.Duration {
	elapsed, first := now.Sub(g.at), longest
	kept := make(map[string]int64, len(sizes))
	for path, size := range sizes {
		grown := size - g.sizes[path]
		if size < maximum {
			kept[path] = size
		}
		if grown <= 0 || elapsed <= 0 {
			continue
		}
		left := float64(maximum-kept[path]) / float64(grown) * float64(elapsed)
		if left < float64(first) {
			first = time.Duration(left)
		}
	}
	g.at, g.sizes = now, kept
	return max(first, min(shortestInterval, longest))
}

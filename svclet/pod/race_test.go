//go:build race

package pod

// defaultSeeds is a quarter of the scenarios: machines have no goroutines, and the race
// detector makes each step ten times slower.
const defaultSeeds = 100

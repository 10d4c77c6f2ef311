//go:build !race

package pod

// defaultSeeds is how many random scenarios are played.
const defaultSeeds = 400

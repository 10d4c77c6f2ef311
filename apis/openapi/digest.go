package openapi

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// Digest returns a hash of the definitions of the named models and of all that they
// refer to, without making them. It is as fine as Go packages: a change of a
// definition changes the digests of the models of each package that refers to it.
func Digest(models ...string) string {
	var packages []string
	for _, model := range models {
		packages = append(packages, PackageOf(model))
	}
	slices.Sort(packages)
	sum := sha256.New()
	for _, name := range slices.Compact(packages) {
		sum.Write([]byte(name + "=" + packageDigests[name] + "\n"))
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// PackageOf returns the package that the name of a model begins with, such as
// io.k8s.api.core.v1 of io.k8s.api.core.v1.Pod.
func PackageOf(model string) string { return model[:max(0, strings.LastIndexByte(model, '.'))] }

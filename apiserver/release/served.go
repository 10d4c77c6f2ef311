package release

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/apis/resource"
)

// Served says which API versions are served: those that the release has, that
// are stable (or beta and on by default), as --runtime-config corrects it.
// NewServed makes it.
type Served struct {
	release Release
	config  runtimeConfig
}

// betaOff is the first release in which new beta versions are off by default
// (document 1, section 9).
var betaOff = Release{1, 22}

// Versions are the served versions of the kind, in the declaration's order:
// the hub, if served, comes first.
func (s Served) Versions(k *resource.Kind) []schema.GroupVersionKind {
	var served []schema.GroupVersionKind
	if s.Serves(k.Hub, k.Name, k.New(), k.Computed != nil) {
		served = append(served, k.Hub)
	}
	for _, v := range k.Versions {
		if s.Serves(v.GVK, k.Name, v.New(), v.OnByDefault) {
			served = append(served, v.GVK)
		}
	}
	return served
}

// Serves reports whether the resource (or subresource, such as
// "deployments/scale") is served in the version. The example is an object of
// the version's Go type: it knows in which releases the version exists.
// onByDefault is what the declaration says of a beta version.
func (s Served) Serves(gvk schema.GroupVersionKind, name string, example runtime.Object, onByDefault bool) bool {
	if !s.release.has(example) {
		return false
	}
	name, _, _ = strings.Cut(name, "/")
	if on, ok := s.config.resources[gvk.GroupVersion().WithResource(name)]; ok {
		return on
	}
	if on, ok := s.config.versions[gvk.GroupVersion()]; ok {
		return on
	}
	stability := stabilityOf(gvk.Version)
	if on, ok := s.config.stabilities[stability]; ok {
		return on
	}
	switch stability {
	case ga:
		return true
	case beta:
		return onByDefault || introducedBefore(example, betaOff)
	default:
		return false
	}
}

// has reports whether the release has the Go type of an object: it was
// introduced by then and not yet removed.
func (r Release) has(obj runtime.Object) bool {
	if t, ok := obj.(introduced); ok && r.Before(at(t.APILifecycleIntroduced())) {
		return false
	}
	if t, ok := obj.(removed); ok && !r.Before(at(t.APILifecycleRemoved())) {
		return false
	}
	return true
}

func introducedBefore(obj runtime.Object, r Release) bool {
	t, ok := obj.(introduced)
	return ok && at(t.APILifecycleIntroduced()).Before(r)
}

// introduced and removed are what k8s.io/api's types implement; a type without
// them has always existed, and always will.
type introduced interface {
	APILifecycleIntroduced() (major, minor int)
}
type removed interface {
	APILifecycleRemoved() (major, minor int)
}

func at(major, minor int) Release { return Release{major, minor} }

// stability is how much a version promises, by its name.
type stability string

const (
	ga    stability = "ga"
	beta  stability = "beta"
	alpha stability = "alpha"
)

func stabilityOf(version string) stability {
	switch {
	case strings.Contains(version, "alpha"):
		return alpha
	case strings.Contains(version, "beta"):
		return beta
	default:
		return ga
	}
}

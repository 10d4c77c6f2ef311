package release

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/apis/resource"
)

// Served reports which API versions are served: those of the release that are
// stable, or beta and on by default, as changed by --runtime-config.
type Served struct {
	release Release
	config  runtimeConfig
}

// betaOff is the first release in which new beta versions are off by default
// (document 1, section 9).
var betaOff = Release{1, 22}

// Versions returns the served versions of the kind, in the declaration's order: the
// hub, if it is served, is the first.
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
// "deployments/scale") is served in the version. example is an object of the
// version's Go type, which has the releases in which the version exists.
// onByDefault is whether the declaration serves a beta version by default.
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

// ServesOther reports whether a stable version that has no declaration is served.
func (s Served) ServesOther(gv schema.GroupVersion) bool {
	if on, ok := s.config.versions[gv]; ok {
		return on
	}
	on, ok := s.config.stabilities[stabilityOf(gv.Version)]
	return on || !ok
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

// introduced and removed are interfaces of k8s.io/api's types. A type without them
// exists in every release.
type introduced interface {
	APILifecycleIntroduced() (major, minor int)
}
type removed interface {
	APILifecycleRemoved() (major, minor int)
}

func at(major, minor int) Release { return Release{major, minor} }

// stability is the stability level of a version, by its name.
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

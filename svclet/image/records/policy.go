package records

import (
	"errors"
	"fmt"
	"strings"

	"github.com/distribution/reference"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// Policy decides for which images of the node the pods' credentials are verified.
type Policy struct {
	// Verification is imagePullCredentialsVerificationPolicy.
	Verification kubeletconfig.ImagePullCredentialsVerificationPolicy
	// Allowlist are the repositories of preloaded images that need no verification with
	// NeverVerifyAllowlistedImages: names without tag and digest, or ending in "/*".
	Allowlist []string
}

// Verifies reports whether credentials are verified for an image of a repository. pulled
// is whether the agent pulled it; other images have been preloaded.
func (p Policy) Verifies(repository string, pulled bool) bool {
	switch p.Verification {
	case kubeletconfig.NeverVerify:
		return false
	case kubeletconfig.NeverVerifyPreloadedImages:
		return pulled
	case kubeletconfig.NeverVerifyAllowlistedImages:
		return pulled || !p.allowlisted(repository)
	}
	return true
}

func (p Policy) allowlisted(repository string) bool {
	for _, entry := range p.Allowlist {
		if prefix, wildcard := strings.CutSuffix(entry, "/*"); wildcard {
			if strings.HasPrefix(repository, prefix+"/") {
				return true
			}
		} else if entry == repository {
			return true
		}
	}
	return false
}

// CheckAllowed returns an error for an entry of the allowlist that could match no image:
// one that has a tag or a digest, is not written with its registry, or has a wildcard
// elsewhere than as its last segment.
func CheckAllowed(entry string) error {
	name, wildcard := strings.CutSuffix(entry, "/*")
	if wildcard && name != "" && !strings.Contains(name, "/") && strings.ContainsAny(name, ".:") {
		name += "/any" // all repositories of a registry
	}
	named, err := reference.ParseNamed(name)
	switch {
	case strings.Contains(name, "*"):
		return errors.New("must not have wildcards other than a last segment /*")
	case err != nil:
		return fmt.Errorf("must be an image with its registry, without tag and digest, such as registry.example/team/* or docker.io/library/busybox: %w", err)
	case !reference.IsNameOnly(named):
		return errors.New("must not have a tag or a digest")
	}
	return nil
}

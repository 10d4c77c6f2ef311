package image

import (
	"fmt"

	"github.com/distribution/reference"
)

// name is a parsed image name.
type name struct {
	// full is the pod's image, with the tag "latest" if it has neither tag nor digest.
	// The runtime chooses the registry if it has none.
	full string
	// repository is the name with its registry, without tag and digest; it selects
	// credentials.
	repository string
}

const defaultTag = "latest"

func parseName(image string) (name, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return name{}, fmt.Errorf("couldn't parse image name %q: %w", image, err)
	}
	n := name{full: image, repository: named.Name()}
	_, tagged := named.(reference.Tagged)
	_, digested := named.(reference.Digested)
	if !tagged && !digested {
		n.full += ":" + defaultTag
	}
	return n, nil
}

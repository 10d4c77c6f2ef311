package image

import (
	"fmt"

	"github.com/distribution/reference"
)

// name is an image's, read.
type name struct {
	// full is what the pod says, with the tag "latest" if it has neither tag
	// nor digest. A registry that it does not name is left to the runtime.
	full string
	// repository is the name without tag and digest, with its registry:
	// credentials are found by it.
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

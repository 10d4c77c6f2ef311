package nodeconfig

import (
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// HostName returns the node's name: override (--hostname-override) or, if that is
// empty, the host name of the machine. Both are lower-cased and trimmed, as
// kubelet does it.
func HostName(override string) (string, error) {
	name, origin := override, "--hostname-override"
	if name == "" {
		var err error
		if name, err = os.Hostname(); err != nil {
			return "", fmt.Errorf("read the host name: %w; give --hostname-override", err)
		}
		origin = "the host name"
	}
	name = strings.ToLower(strings.TrimSpace(name))
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return "", fmt.Errorf("%s: %q cannot name a node: %s", origin, name, problems[0])
	}
	return name, nil
}

package discovery

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"

	"svc.dev/svc/internal/releases"
)

// Release returns the release that the API server served when it was first asked. One that is
// not in the table of releases is the nearest one that is.
func (d *Discovery) Release(ctx context.Context) (releases.Release, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.release != 0 {
		return d.release, nil
	}
	info, err := d.client.ServerVersionWithContext(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the version of the API server: %w", err)
	}
	v, err := version.ParseGeneric(info.GitVersion)
	if err != nil {
		return 0, fmt.Errorf("the API server's version %q: %w", info.GitVersion, err)
	}
	if v.Major() > 1 {
		d.release = releases.Newest
	} else {
		d.release = min(max(releases.Release(v.Minor()), releases.Oldest), releases.Newest)
	}
	return d.release, nil
}

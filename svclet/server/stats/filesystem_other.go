//go:build !unix

package stats

import (
	"errors"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

func fileSystem(string, time.Time) (*statsapi.FsStats, error) {
	return nil, errors.New("file systems are not measured on this operating system")
}

package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	crierrors "k8s.io/cri-api/pkg/errors"
)

// imageVolumeMetrics are those of images that containers mount as volumes (KEP-4639).
type imageVolumeMetrics struct {
	imagesRequested, imagesMounted, imageMountErrors prometheus.Counter
}

func newImageVolumeMetrics() imageVolumeMetrics {
	return imageVolumeMetrics{
		imagesRequested:  plainCounter("image_volume_requested_total", "Number of requested image volumes."),
		imagesMounted:    plainCounter("image_volume_mounted_succeed_total", "Number of successful image volume mounts."),
		imageMountErrors: plainCounter("image_volume_mounted_errors_total", "Number of failed image volume mounts."),
	}
}

func (i imageVolumeMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{i.imagesRequested, i.imagesMounted, i.imageMountErrors}
}

// ImagesMounted records the creation of a container that mounts images as volumes. An error is
// that of a mount if the container runtime says so.
func (i imageVolumeMetrics) ImagesMounted(images int, err error) {
	i.imagesRequested.Add(float64(images))
	switch {
	case err == nil:
		i.imagesMounted.Add(float64(images))
	case strings.Contains(err.Error(), crierrors.ErrImageVolumeMountFailed.Error()):
		i.imageMountErrors.Add(float64(images))
	}
}

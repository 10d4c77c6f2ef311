package agent

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/svclet/events"
	"svc.dev/svc/svclet/pod"
)

// volumeAbnormal is the metric of the health of volumes of claims: kubelet's.
var volumeAbnormal = prometheus.NewDesc("kubelet_volume_stats_health_status_abnormal",
	"[ALPHA] Abnormal volume health status. The count is either 1 or 0. 1 indicates the volume is unhealthy, 0 indicates volume is healthy",
	[]string{"namespace", "persistentvolumeclaim"}, nil)

// volumeHealth collects the metric, as of the last measurement of each volume.
type volumeHealth struct{ pods *pods }

// Describe implements prometheus.Collector.
func (volumeHealth) Describe(ch chan<- *prometheus.Desc) { ch <- volumeAbnormal }

// Collect implements prometheus.Collector. A volume that several pods use is counted once.
func (v volumeHealth) Collect(ch chan<- prometheus.Metric) {
	seen := map[[2]string]bool{}
	for uid, claims := range v.pods.volumes.AbnormalClaims() {
		p := v.pods.Find(uid)
		if p == nil {
			continue
		}
		for claim, abnormal := range claims {
			name := [2]string{p.Namespace, claim}
			if seen[name] {
				continue
			}
			seen[name] = true
			value := 0.0
			if abnormal {
				value = 1
			}
			ch <- prometheus.MustNewConstMetric(volumeAbnormal, prometheus.GaugeValue, value, name[0], name[1])
		}
	}
}

// recordAbnormal records the event of an abnormal volume of a pod; nil for one that is gone.
func recordAbnormal(recorder *events.Recorder, p *corev1.Pod, volume, message string) {
	if p != nil {
		recorder.Event(p, pod.Event{Type: corev1.EventTypeWarning, Reason: "VolumeConditionAbnormal", Message: fmt.Sprintf("Volume %s: %s", volume, message)})
	}
}

package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/test/peers/difference"
)

// quiet are pods that do not change while the two servers are compared.
var quiet = []string{"runs", "two-containers", "sidecar", "host-network", "guaranteed", "burstable", "pod-level", "volumes"}

// served has the paths of the agents' servers, and the fields of each that are
// compared.
var served = []struct {
	path string
	of   func(ctx context.Context, s *side) difference.Fields
}{
	{path: "/healthz", of: text("/healthz")},
	{path: "/pods", of: listOfPods("/pods")},
	{path: "/runningpods/", of: listOfPods("/runningpods/")},
	{path: "/configz", of: configuration},
	{path: "/stats/summary", of: summary},
	{path: "/metrics/resource", of: series("/metrics/resource")},
	{path: "/metrics/probes", of: series("/metrics/probes")},
}

// get reads a path of the agent's server.
func (s *side) get(ctx context.Context, path string) []byte {
	GinkgoHelper()
	status, body, err := s.Get(ctx, s.cluster, path)
	Expect(err).NotTo(HaveOccurred())
	Expect(status).To(Equal(http.StatusOK), "%s: %s", path, body)
	return body
}

func text(path string) func(ctx context.Context, s *side) difference.Fields {
	return func(ctx context.Context, s *side) difference.Fields {
		return difference.Fields{"body": string(s.get(ctx, path))}
	}
}

// listOfPods returns the quiet pods of a list.
func listOfPods(path string) func(ctx context.Context, s *side) difference.Fields {
	return func(ctx context.Context, s *side) difference.Fields {
		GinkgoHelper()
		var list corev1.PodList
		Expect(json.Unmarshal(s.get(ctx, path), &list)).To(Succeed())
		fields := difference.Fields{"kind": list.Kind, "apiVersion": list.APIVersion}
		for i := range list.Items {
			pod := &list.Items[i]
			known := s.settled[pod.Name]
			if known == nil || !slices.Contains(quiet, pod.Name) {
				continue
			}
			pod.ManagedFields, pod.ResourceVersion = nil, "" // written by other clients
			slices.SortFunc(pod.Spec.Containers, func(a, b corev1.Container) int { return strings.Compare(a.Name, b.Name) })
			s.add(fields, pod.Name, pod, s.neutral(known))
		}
		return fields
	}
}

// add adds the fields of a value, with a name before their paths.
func (s *side) add(to difference.Fields, name string, value any, rewrite func(path, text string) string) {
	GinkgoHelper()
	fields, err := difference.Of(value, rewrite)
	Expect(err).NotTo(HaveOccurred())
	for path, text := range fields {
		to[name+": "+path] = text
	}
}

// configuration returns the agent's configuration with its defaults.
func configuration(ctx context.Context, s *side) difference.Fields {
	GinkgoHelper()
	var config map[string]any
	Expect(json.Unmarshal(s.get(ctx, "/configz"), &config)).To(Succeed())
	neutral := s.neutral(nil)
	fields, err := difference.Of(config, func(path, text string) string {
		if text == s.Port {
			return "PORT"
		}
		return neutral(path, text)
	})
	Expect(err).NotTo(HaveOccurred())
	return fields
}

// summary returns which statistics exist for the node and quiet pods.
func summary(ctx context.Context, s *side) difference.Fields {
	GinkgoHelper()
	var answer struct {
		Node any
		Pods []map[string]any
	}
	Expect(json.Unmarshal(s.get(ctx, "/stats/summary"), &answer)).To(Succeed())
	fields := difference.Fields{}
	neutral := s.neutral(nil)
	figures := func(path, text string) string {
		switch path {
		case "nodeName", "podRef.name", "podRef.namespace":
			return neutral(path, text)
		}
		if strings.HasSuffix(path, ".name") {
			return text
		}
		return "is told"
	}
	s.add(fields, "node", answer.Node, figures)
	for _, pod := range answer.Pods {
		ref, _ := pod["podRef"].(map[string]any)
		name, _ := ref["name"].(string)
		if ref["namespace"] == s.namespace && slices.Contains(quiet, name) {
			s.add(fields, name, pod, figures)
		}
	}
	maps.DeleteFunc(fields, func(path, _ string) bool { return strings.HasSuffix(path, "[]") }) // in no order
	return fields
}

func (s *side) metrics(ctx context.Context, path string) map[string]*dto.MetricFamily {
	GinkgoHelper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(s.get(ctx, path)))
	Expect(err).NotTo(HaveOccurred())
	return families
}

// series returns the metric series of the node and of quiet pods, with their types
// and help texts.
func series(path string) func(ctx context.Context, s *side) difference.Fields {
	return func(ctx context.Context, s *side) difference.Fields {
		GinkgoHelper()
		fields := difference.Fields{}
		neutral := s.neutral(nil)
		for name, family := range s.metrics(ctx, path) {
			fields[name+": type"] = family.GetType().String()
			fields[name+": help"] = family.GetHelp()
			for _, metric := range family.GetMetric() {
				var labels []string
				isQuiet := true
				for _, label := range metric.GetLabel() {
					if label.GetName() == "pod" && !slices.Contains(quiet, label.GetValue()) {
						isQuiet = false
					}
					if label.GetName() == "pod_uid" {
						continue
					}
					labels = append(labels, fmt.Sprintf("%s=%q", label.GetName(), neutral("", label.GetValue())))
				}
				if isQuiet {
					slices.Sort(labels)
					stamp := "without a time"
					if metric.TimestampMs != nil {
						stamp = "with a time"
					}
					fields[name+"{"+strings.Join(labels, ",")+"}"] = stamp
				}
			}
		}
		return fields
	}
}

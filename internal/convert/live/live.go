// Package live owns what a check reads from a cluster: the metadata and fields of objects, the
// manifests of Helm releases, and the gauge of deprecated requests. It writes nothing.
package live

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"svc.dev/svc/internal/convert"
	"svc.dev/svc/internal/manifest"
)

const (
	// file stands for the file in outcomes of live objects.
	file = "cluster"
	// pageSize bounds what a list holds in memory.
	pageSize = 500
	gauge    = "apiserver_requested_deprecated_apis"
)

// Check returns what is known of the objects of a cluster, and warnings of what it could
// not read.
func Check(ctx context.Context, config *rest.Config, c *convert.Converter) (outcomes []convert.Outcome, warnings []string, err error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	lists, err := client.ServerPreferredResources()
	if lists == nil && err != nil {
		return nil, nil, err
	}
	if err != nil {
		warnings = append(warnings, fmt.Sprintf("not all API groups were read: %v", err))
	}
	whole, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	reader := &reader{metadata: objects, whole: whole, seen: map[types.UID]bool{}}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil || !c.Table.HasGroup(gv.Group) {
			continue
		}
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") || r.Kind == "Event" { // events expire
				continue
			}
			found, err := reader.check(ctx, c, gv.WithResource(r.Name), gv.WithKind(r.Kind))
			if ctx.Err() != nil {
				return nil, nil, ctx.Err()
			}
			if err != nil {
				warnings = append(warnings, fmt.Sprintf("%s %s were not read: %v", gv, r.Name, err))
			}
			outcomes = append(outcomes, found...)
		}
	}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	found, unread := helmReleases(ctx, typed, c)
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	outcomes, warnings = append(outcomes, found...), append(warnings, unread...)
	requested, err := requested(ctx, client, c)
	if err != nil {
		warnings = append(warnings, fmt.Sprintf("requests for deprecated versions were not read (/metrics): %v", err))
	}
	return append(outcomes, requested...), warnings, nil
}

// reader reads the objects of a cluster: the metadata, and all of the objects of kinds of
// which the release lacks fields: Secrets are among these at releases before 1.19, which have
// no field immutable.
type reader struct {
	metadata metadata.Interface
	whole    dynamic.Interface
	// seen are objects that another group has as well, such as Ingresses in extensions and
	// networking.k8s.io.
	seen map[types.UID]bool
}

// check checks the objects of a resource, page by page, except those seen before.
func (r *reader) check(ctx context.Context, c *convert.Converter, gvr schema.GroupVersionResource, gvk schema.GroupVersionKind) ([]convert.Outcome, error) {
	var outcomes []convert.Outcome
	add := func(meta *metav1.ObjectMeta) *convert.Outcome {
		if meta.UID != "" && r.seen[meta.UID] {
			return nil
		}
		r.seen[meta.UID] = true
		o := c.Live(gvk, meta)
		o.File = file
		outcomes = append(outcomes, o)
		return &outcomes[len(outcomes)-1]
	}
	lacks := c.Lacks(gvk)
	err := pages(func(next string) (string, error) {
		options := metav1.ListOptions{Limit: pageSize, Continue: next}
		if lacks {
			page, err := r.whole.Resource(gvr).List(ctx, options)
			if err != nil {
				return "", err
			}
			for i := range page.Items {
				if err := checkWhole(c, gvk, &page.Items[i], add); err != nil {
					return "", err
				}
			}
			return page.GetContinue(), nil
		}
		page, err := r.metadata.Resource(gvr).List(ctx, options)
		if err != nil {
			return "", err
		}
		for i := range page.Items {
			add(&page.Items[i].ObjectMeta)
		}
		return page.Continue, nil
	})
	return outcomes, err
}

// checkWhole checks the metadata and the fields of an object.
func checkWhole(c *convert.Converter, gvk schema.GroupVersionKind, obj *unstructured.Unstructured, add func(*metav1.ObjectMeta) *convert.Outcome) error {
	var partial metav1.PartialObjectMetadata
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"metadata": obj.Object["metadata"]}, &partial); err != nil {
		return err
	}
	o := add(&partial.ObjectMeta)
	if o == nil {
		return nil
	}
	text, err := json.Marshal(obj.Object)
	if err != nil {
		return err
	}
	documents, err := manifest.Parse("", string(text))
	if err != nil {
		return err
	}
	for _, d := range documents {
		c.Fields(o, gvk, d.Root)
	}
	return nil
}

// requested reads the gauge of requests for deprecated versions.
func requested(ctx context.Context, client discovery.DiscoveryInterface, c *convert.Converter) ([]convert.Outcome, error) {
	text, err := client.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	return parse(text, c)
}

func parse(text []byte, c *convert.Converter) ([]convert.Outcome, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	var outcomes []convert.Outcome
	for _, m := range families[gauge].GetMetric() {
		labels := map[string]string{}
		for _, pair := range m.GetLabel() {
			labels[pair.GetName()] = pair.GetValue()
		}
		gvr := schema.GroupVersionResource{Group: labels["group"], Version: labels["version"], Resource: labels["resource"]}
		if o, ok := c.Requested(gvr, labels["subresource"], labels["removed_release"]); ok {
			o.File = file
			outcomes = append(outcomes, o)
		}
	}
	return outcomes, nil
}

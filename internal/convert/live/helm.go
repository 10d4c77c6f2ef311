package live

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"svc.dev/svc/internal/convert"
)

const (
	// deployed selects what Helm 3 keeps of the releases that are installed now, in
	// Secrets or, with HELM_DRIVER=configmap, in ConfigMaps.
	deployed = "owner=helm,status=deployed"
	// helmPageSize bounds what a list of releases holds in memory: each may have 1 MB.
	helmPageSize = 20
	// maxRelease bounds a decompressed release, in bytes.
	maxRelease = 64 << 20
)

// helmReleases checks the manifests of the Helm releases of a cluster, and returns
// warnings of what it could not read.
func helmReleases(ctx context.Context, client kubernetes.Interface, c *convert.Converter) (outcomes []convert.Outcome, warnings []string) {
	add := func(kind, namespace, name string, stored []byte) {
		found, err := helmRelease(c, stored)
		if err != nil {
			warnings = append(warnings, fmt.Sprintf("the Helm release in %s %s/%s was not read: %v", kind, namespace, name, err))
		}
		outcomes = append(outcomes, found...)
	}
	err := pages(func(next string) (string, error) {
		page, err := client.CoreV1().Secrets("").List(ctx, metav1.ListOptions{LabelSelector: deployed, Limit: helmPageSize, Continue: next})
		if err != nil {
			return "", err
		}
		for i := range page.Items {
			add("Secret", page.Items[i].Namespace, page.Items[i].Name, page.Items[i].Data["release"])
		}
		return page.Continue, nil
	})
	if err != nil {
		warnings = append(warnings, fmt.Sprintf("Helm releases in Secrets were not read: %v", err))
	}
	err = pages(func(next string) (string, error) {
		page, err := client.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{LabelSelector: deployed, Limit: helmPageSize, Continue: next})
		if err != nil {
			return "", err
		}
		for i := range page.Items {
			add("ConfigMap", page.Items[i].Namespace, page.Items[i].Name, []byte(page.Items[i].Data["release"]))
		}
		return page.Continue, nil
	})
	if err != nil {
		warnings = append(warnings, fmt.Sprintf("Helm releases in ConfigMaps were not read: %v", err))
	}
	return outcomes, warnings
}

// pages calls list with the token of each page until there is none.
func pages(list func(next string) (string, error)) error {
	for next := ""; ; {
		var err error
		if next, err = list(next); err != nil || next == "" {
			return err
		}
	}
}

// helmRelease checks the manifest of a release: JSON, compressed, in base64.
func helmRelease(c *convert.Converter, stored []byte) ([]convert.Outcome, error) {
	compressed, err := base64.StdEncoding.DecodeString(string(stored))
	if err != nil {
		return nil, err
	}
	reader, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(reader, maxRelease+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxRelease {
		return nil, errors.New("it has more than 64 MiB")
	}
	var release struct {
		Name, Namespace, Manifest string
	}
	if err := json.Unmarshal(content, &release); err != nil {
		return nil, err
	}
	_, outcomes, err := c.File(fmt.Sprintf("Helm release %s/%s", release.Namespace, release.Name), release.Manifest)
	return outcomes, err
}

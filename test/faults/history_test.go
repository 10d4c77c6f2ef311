package faults

import (
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestCompactedVersionsAreExpired shortens the compaction interval, and then requests
// versions that were compacted: with a watch, the next page of a list, and a list at a
// version.
func TestCompactedVersionsAreExpired(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	server := up(t, filepath.Join(tempDir(t), "data"), "--etcd-compaction-interval=1s")
	maps := clientOf(t, server.Config).CoreV1().ConfigMaps("default")
	for i := range 5 {
		_, err := maps.Create(t.Context(), configMap(fmt.Sprint("c", i), "1"), metav1.CreateOptions{})
		g.Expect(err).NotTo(HaveOccurred())
	}
	page, err := maps.List(t.Context(), metav1.ListOptions{Limit: 2})
	g.Expect(err).NotTo(HaveOccurred())
	const path = "/api/v1/namespaces/default/configmaps"
	for _, query := range []string{
		"?limit=2&continue=" + page.Continue,
		"?resourceVersionMatch=Exact&resourceVersion=" + page.ResourceVersion,
		"?watch=1&timeoutSeconds=1&resourceVersion=1",
	} {
		// Compaction follows writes: something has to happen meanwhile.
		g.Eventually(func() (string, error) {
			_, err := maps.Update(t.Context(), configMap("c0", "2"), metav1.UpdateOptions{})
			if err != nil {
				return "", err
			}
			_, body := get(server.Config, path+query)
			return body, nil
		}).Should(And(ContainSubstring(`"reason":"Expired"`), ContainSubstring(`"code":410`)), query)
	}
	list, err := maps.List(t.Context(), metav1.ListOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(list.Items)).To(BeNumerically(">=", 5))
	g.Eventually(func() int { return status(server.Config, "/readyz") }).Should(Equal(http.StatusOK))
}

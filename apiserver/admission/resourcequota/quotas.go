package resourcequota

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	library "k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/utils/lru"
)

// timeout bounds a read or write of a quota. It is less than the time for which the
// library lets a request wait, 10 s.
const timeout = 5 * time.Second

// quotas reads and writes quotas for the library's evaluator.
type quotas struct {
	client coreclient.CoreV1Interface
	lister corelisters.ResourceQuotaLister
	// written has quotas by namespace and name, as this server has written them, or
	// read them after a conflict. The informer sees them some milliseconds later.
	written *lru.Cache
}

var _ library.QuotaAccessor = &quotas{}

func key(q *corev1.ResourceQuota) string { return q.Namespace + "/" + q.Name }

// UpdateQuotaStatus implements library.QuotaAccessor. After a conflict with another
// server, the next GetQuotas returns the quota as it is stored.
func (a *quotas) UpdateQuotaStatus(q *corev1.ResourceQuota) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	client := a.client.ResourceQuotas(q.Namespace)
	updated, err := client.UpdateStatus(ctx, q, metav1.UpdateOptions{})
	if err == nil {
		a.written.Add(key(q), updated)
		return nil
	}
	if apierrors.IsConflict(err) {
		if stored, readErr := client.Get(ctx, q.Name, metav1.GetOptions{}); readErr == nil {
			a.written.Add(key(q), stored)
		}
	}
	return err
}

// GetQuotas implements library.QuotaAccessor. The caller may change the quotas.
func (a *quotas) GetQuotas(namespace string) ([]corev1.ResourceQuota, error) {
	found, err := a.lister.ResourceQuotas(namespace).List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list the quotas of namespace %s: %w", namespace, err)
	}
	var all []corev1.ResourceQuota
	for _, q := range found {
		all = append(all, *a.newest(q).DeepCopy())
	}
	return all, nil
}

// newest returns the quota of the informer or the one in written, whichever is newer.
func (a *quotas) newest(q *corev1.ResourceQuota) *corev1.ResourceQuota {
	cached, ok := a.written.Get(key(q))
	if !ok {
		return q
	}
	own := cached.(*corev1.ResourceQuota)
	if order, err := resourceversion.CompareResourceVersion(own.ResourceVersion, q.ResourceVersion); err != nil || order <= 0 || own.UID != q.UID {
		a.written.Remove(key(q))
		return q
	}
	return own
}

// Package certificates owns the agent's certificates that the API server signs: it
// requests the first client certificate with a bootstrap kubeconfig, and renews the
// client and the serving certificate in --cert-dir while the agent runs (document 3,
// section 5).
package certificates

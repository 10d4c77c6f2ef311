// Package decide decides how many replicas an autoscaler's target has to have, by the
// documented algorithm of HorizontalPodAutoscalers. It has no client and no clock; the
// scripts in testdata show its decisions.
//
// Proposals are made for each metric ([Resource], [PerPod], [Value], [AverageValue]);
// [Choose] takes the largest, and [Limit] bounds it by the minimum and maximum, the
// stabilization windows and the scaling policies.
//
// https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#algorithm-details
package decide

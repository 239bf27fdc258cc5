"""The paper's figures and claims, recomputed on the public interface of csdp: what its formulas give, what is true."""

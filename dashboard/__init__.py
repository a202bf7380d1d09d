"""The pages: Streamlit, talking to the API and to nothing else."""
